package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"captureproxy/export"
	"captureproxy/export/show"
)

func newShow() *cobra.Command {
	var flags controlFlags
	var data, page string
	var text textFlags
	graph := &choice{"", []string{"mermaid", "dot"}}
	cmd := &cobra.Command{
		Use:   "show FILE|SESSION",
		Short: "Show one screen about a rollout",
		Long: `show draws a rollout: the graph as a tree, roles, counts, findings. It takes a document on disk (a dash is standard input)
or, where there is no such file, a session: of a store that no proxy has open with --data, of a running proxy with --url.

--html writes everything about it into one file that opens in a browser without scripts or a network.`,
		Example: `  capture-proxy show rollout-s-1234.json
  capture-proxy show s-1234 --url http://127.0.0.1:8100
  capture-proxy show --data ./capture-data s-1234 --graph dot | dot -Tsvg > graph.svg
  capture-proxy show --text rollout-s-1234.json
  capture-proxy show rollout-s-1234.json --html rollout.html`,
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
			if text.on {
				return text.write(cmd.Context(), cmd.OutOrStdout(), doc)
			}
			if page != "" {
				return text.writePage(cmd.Context(), page, doc)
			}
			return draw(cmd.OutOrStdout(), doc, graph.value, flags.json)
		},
	}
	f := cmd.Flags()
	flags.add(f)
	f.StringVar(&data, "data", "", "directory of a store, or the address of a database, postgres://…")
	f.StringVar(&page, "html", "", "write one self-contained page into `FILE`, for a browser")
	f.Var(graph, "graph", graph.usage("print the graph for another program"))
	text.add(f)
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

// storedDocument derives a session's document from a store that is not served.
func storedDocument(ctx context.Context, data, id string) (_ *export.Rollout, err error) {
	st, err := openData(ctx, data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return deriveStored(ctx, st, id, export.Options{IncludeDiscarded: true, IncludeMessages: true, ProxyVersion: version()})
}
