-- The study's table of tasks. Claims and listings by status go through the one index.

CREATE TABLE tasks (
	id TEXT PRIMARY KEY,
	cmd TEXT NOT NULL,
	args TEXT NOT NULL,
	status TEXT NOT NULL,
	output TEXT NOT NULL,
	scheduled_at INTEGER NOT NULL,
	discard INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX tasks_status ON tasks (status, scheduled_at);
