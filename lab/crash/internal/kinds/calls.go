package kinds

// Calls are system calls before one of which a victim can be killed, by name. Of write(2) those are among them that
// Go's runtime does not make.
var calls = []string{"sync", "name", "write", "size"}

// CanKillBefore reports whether [KillBefore] works on this system.
func CanKillBefore() bool { return auditArch != 0 }
