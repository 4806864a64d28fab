package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"captureproxy/export"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/ui"
)

func newView() *cobra.Command {
	var listen, upstream, upstreamKey string
	cmd := &cobra.Command{
		Use:   "view FILE…",
		Short: "Look at documents on disk in a browser",
		Long: `view serves the pages of /ui/ for document files: the graph, the rows, the turns as conversations, the tokens, and why a
conversation broke. It listens on this machine only, prints its address, and serves until it is interrupted.

The texts of tokens come from the engine that --upstream names, if it can be asked; without one the ids are shown.`,
		Example: `  capture-proxy view rollout-s-1234.json
  capture-proxy view rollouts/*.json --upstream http://127.0.0.1:8000`,
		Args: need("FILE", cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListen(listen, "", false); err != nil {
				return err
			}
			var docs []*export.Rollout
			for _, file := range args {
				doc, err := readDocument(file, cmd.InOrStdin())
				if err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				docs = append(docs, doc)
			}
			hub, err := engine.NewHub(engine.Config{URL: upstream, Key: upstreamKey})
			if err != nil {
				return usageError{err}
			}
			defer hub.Close()
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return serveDocuments(ctx, cmd.OutOrStdout(), listen, docs, anyTokenizer(hub.Default()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on, of this machine only")
	f.StringVar(&upstream, "upstream", "", "engine to ask for the texts of tokens")
	f.StringVar(&upstreamKey, "upstream-key", "", "that engine's key")
	return cmd
}

// serveDocuments serves pages until ctx is done.
func serveDocuments(ctx context.Context, w io.Writer, listen string, docs []*export.Rollout, texts func(*export.Rollout) ui.Detokenize) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	source := ui.NewDocuments(docs)
	pages, err := ui.New(ui.Options{Source: source, URL: baseURL(listener), Loopback: true, Engine: texts})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := newHTTPServer(pages, zap.NewNop())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	address := baseURL(listener) + "/ui/"
	if keys := source.Keys(); len(keys) == 1 {
		address += "sessions/" + keys[0]
	}
	fmt.Fprintln(w, address)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(moment); err != nil {
		return errors.Join(err, server.Close())
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// anyTokenizer lets one engine speak for every document: whoever looks at them says that it is theirs.
func anyTokenizer(up *engine.Upstream) func(*export.Rollout) ui.Detokenize {
	if up == nil {
		return nil
	}
	return func(*export.Rollout) ui.Detokenize { return up.Detokenize }
}

// tokenizers finds the engine of a document among those that the proxy uses. A document's own address is never called.
func tokenizers(hub *engine.Hub) func(*export.Rollout) ui.Detokenize {
	return func(doc *export.Rollout) ui.Detokenize {
		if up := hub.Default(); up != nil && up.URL() == doc.Engine.URL {
			return up.Detokenize
		}
		for _, up := range hub.Named() {
			if up.URL() == doc.Engine.URL {
				return up.Detokenize
			}
		}
		return nil
	}
}
