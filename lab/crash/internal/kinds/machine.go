package kinds

// The losses by name.
const (
	byKill            = "kill"
	byPowerCut        = "power cut"
	byPowerCutOfAll   = "power cut of all"
	byLostDisk        = "lost disk"
	byIsolation       = "isolation"
	byNotHeard        = "one-way cut: not heard"
	byHearingNothing  = "one-way cut: hears nothing"
	byCancelledWait   = "cancelled wait"
	byEmptiedNames    = "emptied standby names"
	byIsolatedOwner   = "isolated owner"
	byPausedOwner     = "paused owner"
	byIsolatedPrimary = "isolated primary"
)

// Losses lists the ways to lose a machine, or the owner, in the order of their rounds.
func Losses() []string {
	return []string{byKill, byPowerCut, byPowerCutOfAll, byLostDisk, byIsolation, byNotHeard, byHearingNothing,
		byCancelledWait, byEmptiedNames, byIsolatedOwner, byPausedOwner, byIsolatedPrimary}
}

// ManagedLosses are those after which a manager makes another primary, and nobody else takes the space.
func ManagedLosses() []string { return []string{byKill, byPowerCut, byIsolation, byIsolatedPrimary} }

// crashesPerLab is how often the machines of one lab are crashed.
const crashesPerLab = 5

// MachineEngine is the engine that machines are crashed under.
const MachineEngine = "postgres"

// The controls: commits that are not counted, an update that does not ask for the epoch, reads that do not ask for the
// lease, and a promoter that takes the wrong standby.
const (
	notCounted = "postgres, not counted"
	noEpoch    = "postgres, no epoch"
	noLease    = "postgres, no lease"
	shorterLog = "postgres, shorter log promoted"
)

// InTwoOnMachines is the control of transactions: each is committed in two.
const InTwoOnMachines = "postgres, transactions in two batches"

// OnMachines lists what machines are crashed under with a subject, controls first.
func OnMachines(subject string) []string {
	switch subject {
	case MachineSubjects()[0]:
		return []string{notCounted, noEpoch, noLease, shorterLog, MachineEngine}
	case "transaction":
		return []string{notCounted, noEpoch, shorterLog, InTwoOnMachines, MachineEngine}
	}

	return []string{notCounted, noEpoch, shorterLog, MachineEngine}
}

// MachineSubjects lists the subjects that machines are crashed under: the lab's own writer of keys, and stores.
func MachineSubjects() []string {
	return []string{"kv", "event", "message", "task", "transaction", "serve"}
}
