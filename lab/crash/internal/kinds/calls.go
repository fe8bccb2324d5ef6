package kinds

// Calls are system calls before one of which a victim can be killed, by name. write(2) is not among them: Go's runtime
// makes it where no other thread of the process can go on.
var calls = []string{"sync", "name", "write", "size"}

// CanKillBefore reports whether [KillBefore] works on this system.
func CanKillBefore() bool { return auditArch != 0 }
