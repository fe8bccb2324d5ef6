//go:build !linux

package bench

// look finds out more about the machine. Here nothing is known beyond what the language tells.
func look(*Machine, string) {}

// work tells what else the machine does; here that is not known.
func work() func() float64 { return func() float64 { return -1 } }
