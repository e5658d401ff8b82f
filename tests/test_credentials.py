from __future__ import annotations

import pytest

from hubscout.credentials import lacks_credentials, strip_credentials
from hubscout.errors import CacheError, HubscoutError, InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://AKIA:s3cret@bucket/features", "s3://***@bucket/features"),
        ("s3://AKIA:s3/cr+et@bucket/features", "s3://***@bucket/features"),
        ("https://me:p%40ss@host:8080/a.csv", "https://***@host:8080/a.csv"),
        ("https://me:p@ss@host/a.csv", "https://***@host/a.csv"),
        ("https://ghp_token@host/a", "https://***@host/a"),
        ("https://me:s3cret@host/a@b.csv", "https://***@host/a@b.csv"),
        ("http://:s3cret@host", "http://***@host"),
        ("ftp://me:s3cret@host/a b.csv", "ftp://***@host/a b.csv"),
        ("simplecache::https://me:s3cret@host/a", "simplecache::https://***@host/a"),
        ("https://h/a.csv?X-Amz-Signature=ab12&X-Amz-Date=3", "https://h/a.csv?X-Amz-Signature=***&X-Amz-Date=3"),
        ("https://h/a?X-Amz-Credential=AKIA%2F1&x=1", "https://h/a?X-Amz-Credential=***&x=1"),
        ("https://h/a?sv=2024&sig=ab%2B&se=3", "https://h/a?sv=2024&sig=***&se=3"),
        ("https://h/a?token=abc#part", "https://h/a?token=***#part"),
        ("https://h/a?api_key=abc&access_token=d", "https://h/a?api_key=***&access_token=***"),
        ("https://h/a?AWSAccessKeyId=abc&Signature=d", "https://h/a?AWSAccessKeyId=***&Signature=***"),
        ("https://h/a?a=1&amp;sig=abc", "https://h/a?a=1&amp;sig=***"),
        ("python:m.py:f?weights=https://me:s3cret%40host/w.pth", "python:m.py:f?weights=https://***@host/w.pth"),
        ('{"cache": "s3://a:b@c/d", "x": "y@z"}', '{"cache": "s3://***@c/d", "x": "y@z"}'),
        ("cannot open s3://a:b@c/d: no such key a@b", "cannot open s3://***@c/d: no such key a@b"),
        ("--token hf_abcdefghijklmnopqrstuvwxyz01234567", "--token hf_***"),
    ],
)
def test_what_is_taken_out(text, expected):
    assert strip_credentials(text) == expected
    assert strip_credentials(expected) == expected, "what is clean stays as it is"
    assert lacks_credentials(expected) == ("://" in text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/features",
        "https://host:8080/a@b.csv",
        "https://host:80/x:y@z",
        "abfs://container@account/x",
        "sftp://me@host/data",
        "timm/resnet50.a1_in1k",
        "python:m.py:f?key=3&token=word",
        "hf/a/b@main",
        "a:b@c",
        "file:w.pth?arch=timm/x",
        "https://h/a?tokenizer=x&keyword=y",
        "hf_transfer",
        "https://huggingface.co/a/b?rev=1",
    ],
)
def test_what_is_left_alone(text):
    assert strip_credentials(text) == text
    assert not lacks_credentials(text)


def test_errors_never_tell():
    assert "s3cret" not in str(CacheError("cannot open s3://me:s3cret@bucket/x"))
    assert "s3cret" not in repr(InputError("url must not be s3://me:s3cret@bucket/x"))
    assert str(HubscoutError("a", 3)) == "('a', 3)"
