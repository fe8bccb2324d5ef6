package kinds

// crashesPerLab is how often the machines of one lab are crashed.
const crashesPerLab = 5

// CountingWriter is the writer that acknowledges a commit when it has counted a standby that has flushed it. It must
// not lose anything.
const CountingWriter = "pgx, counted"

// The controls: a writer that believes every COMMIT, and a promoter that takes the wrong standby.
const (
	believingWriter = "pgx, not counted"
	shorterLog      = "pgx, shorter log promoted"
)

// Writers lists the writers of machines, controls first.
func Writers() []string { return []string{believingWriter, shorterLog, CountingWriter} }
