package contender

import "github.com/holdfastdb/holdfast"

const NATS = "nats"

func DescribeNATS() holdfast.Capabilities                              { return holdfast.Capabilities{Engine: NATS} }
func OpenNATS(dir string, o holdfast.Options) (holdfast.Engine, error) { return nil, nil }
const ServerArgument = "peer-server"
func Serve(a,b any) int {return 1}
