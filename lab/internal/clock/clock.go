// Package clock reads the one clock that all processes of a machine share and nobody sets, so that what a victim did
// can be placed among the requests that its disk saw.
package clock
