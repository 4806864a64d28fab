package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"captureproxy/export"
	"captureproxy/export/show"
	"captureproxy/store"
)

func newShow() *cobra.Command {
	var flags controlFlags
	var data string
	graph := &choice{"", []string{"mermaid", "dot"}}
	cmd := &cobra.Command{
		Use:   "show FILE|SESSION",
		Short: "Show one screen about a rollout",
		Long: `show draws a rollout: the graph as a tree, roles, counts, findings. It takes a document on disk (a dash is standard input)
or, where there is no such file, a session: of a store that no proxy has open with --data, of a running proxy with --url.`,
		Example: `  capture-proxy show rollout-s-1234.json
  capture-proxy show s-1234 --url http://127.0.0.1:8100
  capture-proxy show --data ./capture-data s-1234 --graph dot | dot -Tsvg > graph.svg`,
		Args: need("FILE or SESSION", cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var doc *export.Rollout
			_, err := os.Stat(args[0])
			switch {
			case err == nil || args[0] == "-":
				doc, err = readDocument(args[0], cmd.InOrStdin())
			case data != "":
				doc, err = storedDocument(cmd.Context(), data, args[0])
			case cmd.Flags().Changed("url"):
				doc, err = fetchDocument(cmd.Context(), flags.client(), args[0])
			default:
				err = usagef("there is no file %s; for a session say where it is, with --data DIR or --url PROXY", args[0])
			}
			if err != nil {
				return err
			}
			return draw(cmd.OutOrStdout(), doc, graph.value, flags.json)
		},
	}
	f := cmd.Flags()
	flags.add(f)
	f.StringVar(&data, "data", "", "directory of a store")
	f.Var(graph, "graph", graph.usage("print the graph for another program"))
	return cmd
}

func draw(w io.Writer, doc *export.Rollout, graph string, asJSON bool) error {
	switch {
	case graph == "mermaid":
		return show.Mermaid(w, doc)
	case graph == "dot":
		return show.Dot(w, doc)
	case asJSON:
		_, err := doc.WriteTo(w)
		return err
	}
	return show.Tree(w, doc, show.Options{Color: bool(colours(w))})
}

// storedDocument derives a session's document from a store on disk.
func storedDocument(ctx context.Context, dir, id string) (_ *export.Rollout, err error) {
	if _, err := os.Stat(dir); err != nil { // Open would make it
		return nil, err
	}
	log, err := store.Open(dir, store.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	session, err := log.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	calls, err := log.Calls(ctx, id)
	switch {
	case errors.Is(err, store.ErrDamaged) && session.CaptureFailed == "":
		session.CaptureFailed = err.Error()
	case err != nil && !errors.Is(err, store.ErrDamaged):
		return nil, err
	}
	return export.Build(session, calls, export.Options{IncludeDiscarded: true, IncludeMessages: true, ProxyVersion: version()}), nil
}
