// Package importtest has the fuzzer of imports. It is a separate package because a fuzzer is built with all that the
// tests of its package import, and those of package message import every engine.
package importtest
