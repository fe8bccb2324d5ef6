package kinds

import "slices"

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

	// Of several processes alone.
	byKilledProcess = "killed process"
	byCutProcesses  = "processes cut off from each other"
)

// Losses lists the ways to lose a machine, or the owner, in the order of their rounds.
func Losses() []string {
	return []string{byKill, byPowerCut, byPowerCutOfAll, byLostDisk, byIsolation, byNotHeard, byHearingNothing,
		byCancelledWait, byEmptiedNames, byIsolatedOwner, byPausedOwner, byIsolatedPrimary, byKilledProcess, byCutProcesses}
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

// The controls of several processes: the clock of one is so slow that it does not see its lease end, and clients make a
// write again whose answer was lost, without an id.
const (
	SlowClock       = "postgres, slow clock"
	AnswersRepeated = "postgres, lost answers repeated"
)

// NATS JetStream with three replicas, all of whose machines lose their power: a control, as it is by default,
// and what it is compared with, which syncs each message.
const (
	NATSDefault = "nats, 3 replicas, default sync"
	NATSSynced  = "nats, 3 replicas, sync always"
)

// ofNATS reports whether an engine of OnMachines is a JetStream, whose one loss is a power cut of all.
func ofNATS(name string) bool { return name == NATSDefault || name == NATSSynced }

// FlawedOnMachines reports whether an engine of OnMachines is a control.
func FlawedOnMachines(name string) bool { return name != MachineEngine && name != NATSSynced }

// OnMachines lists what machines are crashed under with a subject, controls first, if they are lost in these ways; nil
// means all.
func OnMachines(subject string, losses []string) []string {
	return slices.DeleteFunc(onMachines(subject), func(name string) bool {
		return ofNATS(name) && losses != nil && !slices.Contains(losses, byPowerCutOfAll) ||
			len(Row{Subject: subject, Losses: losses}.losses()) == 0
	})
}

func onMachines(subject string) []string {
	switch subject {
	case MachineSubjects()[0]:
		return []string{notCounted, noEpoch, noLease, shorterLog, MachineEngine}
	case "message":
		return []string{notCounted, noEpoch, shorterLog, NATSDefault, NATSSynced, MachineEngine}
	case Nodes:
		return []string{shorterLog, SlowClock, AnswersRepeated, MachineEngine}
	case "transaction":
		return []string{notCounted, noEpoch, shorterLog, InTwoOnMachines, MachineEngine}
	}

	return []string{notCounted, noEpoch, shorterLog, MachineEngine}
}

// Nodes is the subject of several processes that are one server. It is for machines alone.
const Nodes = "nodes"

// MachineSubjects lists the subjects that machines are crashed under: the lab's own writer of keys, and stores.
func MachineSubjects() []string {
	return []string{"kv", "event", "message", "task", "transaction", "serve", Nodes}
}
