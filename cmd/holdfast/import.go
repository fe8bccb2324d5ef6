package main

import (
	"errors"
)

// The commands that move data over from other servers.

type importCommand struct {
	EventoDB  importEventoDB  `cmd:"" name:"eventodb" help:"Copy a namespace of an EventoDB server, or its export."`
	Ebuse     importEbuse     `cmd:"" name:"ebuse" help:"Copy the events of a tenant of an ebuse server."`
	MessageDB importMessageDB `cmd:"" name:"messagedb" help:"Copy the messages of a message-db, which is in PostgreSQL."`
}

type importEventoDB struct {
	From  string `arg:"" help:"File that EventoDB has exported, gzip too, or the URL of a running server."`
	Token string `help:"Token of the namespace in the source, if that is a server." placeholder:"T"`
	Into  string `required:"" help:"URL of a server, or directory." placeholder:"URL|[ENGINE:]DIR"`
}

func (c *importEventoDB) run() int {
	return fail(errors.New("import eventodb: not built yet"))
}
