module github.com/holdfastdb/holdfast

go 1.26.0

ignore ./clients/typescript/node_modules

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/netresearch/go-cron v0.9.1
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
)
