// A browser starts no worker for a page that was opened from a file, and the search runs in one. There, an invisible
// frame takes the worker's place. The theme looks for the name IFrameWorker; on a web server nothing happens here.
if (location.protocol === "file:") {
  const inside = `
    window.toFrame = window.postMessage.bind(window);
    window.postMessage = (data) => parent.postMessage(data, "*");
    window.importScripts = (...addresses) => addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
    function load(address) {
      return new Promise((resolve, reject) => {
        const script = document.createElement("script");
        Object.assign(script, { src: address, onload: resolve, onerror: reject });
        document.body.append(script);
      });
    }`;

  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      window.addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        }
      });
      const content = this.frame.contentDocument;
      content.open();
      content.write(`<body><script>${inside}</script></body>`);
      content.close();
      this.loaded = this.frame.contentWindow.importScripts(new URL(address, location.href).href);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.toFrame(data, "*"));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
