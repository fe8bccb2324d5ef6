package data

// Opened is how many logs and task stores are open.
func Opened(d *Data) (logs, tasks int) { return len(d.logs.names()), len(d.tasks.names()) }
