package main

import (
	"errors"
	"testing"
)

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"verify postgres://app:a:b%40c@pg1:5432/app?space=x: no": "verify postgres://app@pg1:5432/app?space=x: no",
		"open postgres://pg1/app?password=abc&space=x: no":       "open postgres://pg1/app?password=&space=x: no",
		"open postgres://pg1/app?sslpassword=abc; no":            "open postgres://pg1/app?sslpassword=; no",
		"serving http://127.0.0.1:8080/a@b":                      "serving http://127.0.0.1:8080/a@b",
		"one\ntwo":                                               "one; two",
	} {
		if got := shown(errors.New(text)); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
