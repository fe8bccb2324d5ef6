package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

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
	set := map[string]string{}
	if c, ok := command.Target.Addr().Interface().(*serveCommand); ok {
		c.set = set
	}
	ctx.AddResolver(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		node, ok := values[flag.Name]
		if !ok || !slices.Contains(command.Flags, flag) {
			return nil, nil
		}

		for _, env := range flag.Tag.Envs {
			if _, set := os.LookupEnv(env); set {
				return nil, nil
			}
		}
		// Tried out here, because the parser's own error names no file.
		where := fmt.Sprintf("%s, line %d", name, node.Line)
		value := any(node.Value)
		if node.Kind == yaml.SequenceNode {
			list := []any{}
			for _, one := range node.Content {
				list = append(list, one.Value)
			}
			value = list
		}
		scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
		err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, reflect.New(flag.Target.Type()).Elem())
		if err == nil && flag.Enum != "" && !flag.EnumMap()[node.Value] {
			err = fmt.Errorf("%q is none of %s", node.Value, strings.Join(flag.EnumSlice(), ", "))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		set[flag.Name] = where

		return value, nil
	}))

	return nil
}

// parseSettings reads a file of settings for these flags.
func parseSettings(text []byte, flags []*kong.Flag) (map[string]yaml.Node, error) {
	var nodes map[string]yaml.Node
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		var wrong *yaml.TypeError
		if errors.As(err, &wrong) {
			return nil, errors.New(strings.Join(wrong.Errors, "; "))
		}

		return nil, err
	}

	for name, node := range nodes {
		i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == name })
		switch {
		case i < 0 || slices.Contains(notSettings, name):
			return nil, fmt.Errorf("line %d: there is no setting %q", node.Line, name)
		case node.Kind == yaml.SequenceNode && flags[i].Target.Kind() == reflect.Slice:
			for _, one := range node.Content {
				if one.Kind != yaml.ScalarNode {
					return nil, fmt.Errorf("line %d: %s has something in it that is not one value", one.Line, name)
				}
			}
		case node.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: %s is not one value", node.Line, name)
		}
	}

	return nodes, nil
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
