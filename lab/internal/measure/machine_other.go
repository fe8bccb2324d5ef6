//go:build !linux

package measure

// look finds out more about the machine. Here nothing is known beyond what the language tells.
func look(*Machine, string) {}

// lookDisk finds out what holds dir. Here nothing is known.
func lookDisk(string) Disk { return Disk{} }

// MountOf finds the mount that holds dir. Here it is not known.
func MountOf(string) Mount { return Mount{} }

// Sys is the directory of /sys that describes the mount's whole device. There is none here.
func (Mount) Sys() string { return "" }

// Work tells what else the machine does; here that is not known.
func Work() func() float64 { return func() float64 { return -1 } }
