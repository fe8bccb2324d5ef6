package enginetest

// laws are the nine laws of the contract. Their texts are printed by a case that fails.
var laws = []law{
	{1, "atomic", `A batch is one change: every reader, at any moment and after any crash, sees
all of its operations or none, and a later one wins over an earlier one. Programs keep what belongs
together (an event and its index, a task and its queue) in one batch; a torn one breaks them where
no error can be seen.`, atomicCases, false},

	{2, "ordered", `Batches take effect in the order of their Apply calls. At any moment and after
any crash, what is there is a prefix of that order: no batch without all before it. A program that
takes numbers under its own lock around Apply relies on this to have no holes.`, orderedCases, false},

	{3, "durable", `Once Wait returns nil, the batch and every batch before it can be read, exactly
as written, and survive what the level names: at Process and Power the death of the process at any
moment, without Close. Nothing written later, at whatever level, may put that at risk, and nothing
may appear that was never written.`, durableCases, false},

	{4, "never weaker than asked", `A commit gets at least the level it asks for, or ErrLevel and no
effect. What it gets is said beforehand, in Capabilities, and the open engine does what its
description says. An acknowledgement that means less than it says is the one mistake that is not
noticed before it costs data.`, levelCases, true},

	{5, "fixed views", `A snapshot, and an iterator, shows one state: that of the moment when it was
made, whatever is written later. It never blocks a writer. What is not closed keeps old data
alive, so open ones are counted in Metrics, and Close refuses with ErrBusy while there are any.`, viewCases, false},

	{6, "poisoned by a failed write", `After a failed write or sync it is not known what the device
has: a second sync may report success for data the first one lost. So the first failure is final.
Nothing is acknowledged after it, every later Apply fails with ErrPoisoned and the cause, Done tells
those who wait, also of a failure in the background, reads go on, and reopening shows everything that
had been acknowledged.`, poisonCases, false},

	{7, "a full disk is an error", `A full disk is ordinary. Writes fail with an error that says so,
nothing that had been acknowledged is lost, reads go on, and the engine works again, at the latest
when it is reopened, once there is room.`, fullCases, true},

	{8, "bad input is an error", `Whatever a caller or a directory brings, the answer is an error of a
class that errors.Is can tell, with a message that names what was wrong. It has no effect, does not
poison the engine, and is never a panic.`, inputCases, false},

	{9, "corruption is distinguished from a torn tail", `What a crash left of the batch at the end of a log had never
been acknowledged: it is cut off without an error, and Metrics says how much. Damage to what had been stored
safely is ErrCorrupt, never a wrong answer and never a panic. An engine that has no checksums for all
it stores says so in Capabilities.`, damageCases, true},
}
