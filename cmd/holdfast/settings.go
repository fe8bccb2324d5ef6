package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// configFile names a file of settings: a YAML mapping from the names of a command's flags to their values.
type configFile string

// notSettings are flags that make no sense in a file.
var notSettings = []string{"help", "config", "print-config"}

// BeforeResolve is called by kong once the flags are known. What the file sets goes behind flags and environment.
func (configFile) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	command := ctx.Selected()
	if command == nil || !slices.Contains(command.Flags, trace.Flag) {
		return nil // HOLDFAST_CONFIG is set, and another command runs
	}
	name := string(ctx.FlagValue(trace.Flag).(configFile))
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	values, err := parseSettings(text, command.Flags)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		value, ok := values[flag.Name]
		if !ok || !slices.Contains(command.Flags, flag) {
			return nil, nil
		}
		for _, env := range flag.Tag.Envs {
			if _, set := os.LookupEnv(env); set {
				return nil, nil
			}
		}
		return value, nil
	}))
	return nil
}

// parseSettings reads a file of settings for these flags.
func parseSettings(text []byte, flags []*kong.Flag) (map[string]any, error) {
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		return nil, err
	}
	values := map[string]any{}
	for name, node := range nodes {
		i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == name })
		switch {
		case i < 0 || slices.Contains(notSettings, name):
			return nil, fmt.Errorf("line %d: there is no setting %q", node.Line, name)
		case node.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: %s is not one value", node.Line, name)
		}
		values[name] = node.Value
	}
	return values, nil
}

// printConfig writes the settings that args, the environment and a file make, as such a file. The token stays out.
func printConfig(w io.Writer, args []string) error {
	var g grammar
	parser, err := newParser(&g, func(int) {})
	if err != nil {
		return err
	}
	ctx, err := parser.Parse(joinNegative(args))
	if err != nil {
		return err
	}
	mapping := yaml.Node{Kind: yaml.MappingNode}
	for _, flag := range ctx.Selected().Flags {
		if slices.Contains(notSettings, flag.Name) || flag.Name == "token" {
			continue
		}
		name, value := new(yaml.Node), new(yaml.Node)
		name.SetString(flag.Name)
		if err := value.Encode(flag.Target.Interface()); err != nil {
			return err
		}
		mapping.Content = append(mapping.Content, name, value)
	}
	text, err := yaml.Marshal(&mapping)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
