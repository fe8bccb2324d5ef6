package bbolt

const mapCaveat = "A commit that must map more of the file waits for snapshots and iterators to be closed: Windows " +
	"cannot map a file beyond its end."

// mapSize reserves nothing: on Windows the file would grow to it.
func mapSize(string) int { return 0 }

func outOfAddressSpace(error) bool { return false }
