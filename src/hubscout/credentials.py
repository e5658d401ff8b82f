"""Addresses without their passwords: what is written to a file or shown to a person never holds a credential."""

from __future__ import annotations

import re

HIDDEN = "***"

_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_AT = "(?:@|%40)"
# The part up to the last @ before the path; a password may itself hold a slash where its user did not escape it.
_USER_AND_PASSWORD = re.compile(rf"(?<=://)(?:[^/?#:]*:[^/?#]*{_AT}|[^/?#:]+:(?!\d+[/?#])[^?#]*{_AT})")
# A lone name is a token on the web; elsewhere it is the user of a machine, or the container of a store.
_USER = re.compile(rf"(?<=://)[^/?#@:*]+{_AT}")
_SECRET_NAMES = "token|secret|signature|sig|password|passwd|pwd|credential|key|keyid|auth|authorization"
_PARAMETER = re.compile(rf"([?&;](?:[\w.-]*[-_.a-z])?(?:{_SECRET_NAMES})=)[^&;#]+", re.IGNORECASE)
_HUB_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{30,}")


def strip_credentials(text: str) -> str:
    """The same text with the passwords, tokens and signatures of its URLs hidden.

    >>> strip_credentials("cannot open s3://KEY:SECRET@bucket/features")
    'cannot open s3://***@bucket/features'
    >>> strip_credentials("https://host/data.csv?X-Amz-Signature=3f2a&part=1")
    'https://host/data.csv?X-Amz-Signature=***&part=1'
    """
    if "://" in text:
        text = _URL.sub(lambda found: _strip_url(found.group()), text)
    return _HUB_TOKEN.sub(f"hf_{HIDDEN}", text) if "hf_" in text else text


def lacks_credentials(url: str) -> bool:
    """Whether credentials were taken out of a URL, so that it cannot be opened as it stands."""
    return f"://{HIDDEN}@" in url or f"={HIDDEN}" in url


def _strip_url(url: str) -> str:
    url = _USER_AND_PASSWORD.sub(f"{HIDDEN}@", url)
    if re.match(r"(git\+)?https?://", url, re.IGNORECASE):
        url = _USER.sub(f"{HIDDEN}@", url)
    return _PARAMETER.sub(rf"\g<1>{HIDDEN}", url)
