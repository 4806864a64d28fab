package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"captureproxy/export"
	"captureproxy/export/show"
	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
	"captureproxy/proxy/ui"
)

// textFlags ask for a rollout's rows as text, decoded by the engine that they came from.
type textFlags struct {
	on                   bool
	url, key, authHeader string
}

func (f *textFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "text", false, "print the rows as text, decoded by the engine's own tokenizer; ids where the engine cannot be asked")
	flags.StringVar(&f.url, "upstream", "", "the engine to ask for texts: with --text by default the one that the document names, with --html by default none")
	flags.StringVar(&f.key, "upstream-key", "", "that engine's API key")
	flags.StringVar(&f.authHeader, "auth-header", "", "header that carries that key")
}

// engine is one that can be asked for the texts of a document's ids.
func (f *textFlags) engine(url string, doc *export.Rollout) (*engine.Upstream, error) {
	up, err := engine.NewUpstream(engine.Config{URL: url, Key: f.key, AuthHeader: f.authHeader, Level: record.LevelText,
		Timeouts: engine.Timeouts{FirstByte: 10 * time.Second, Idle: 10 * time.Second}})
	if err != nil {
		return nil, usagef("no engine can be asked for the text of the ids: %v", err)
	}
	up.Assume(engine.Profile{Level: record.LevelText, Served: doc.Engine.Model})
	return up, nil
}

// writePage writes a document as one page. A file to send to somebody calls no engine that was not named for it.
func (f *textFlags) writePage(ctx context.Context, file string, doc *export.Rollout) error {
	var texts func(*export.Rollout) ui.Detokenize
	if f.url != "" {
		up, err := f.engine(f.url, doc)
		if err != nil {
			return err
		}
		defer up.Close()
		texts = anyTokenizer(up)
	}
	return writeFile(file, func(w io.Writer) error { return ui.WritePage(ctx, w, doc, texts) })
}

func (f *textFlags) write(ctx context.Context, w io.Writer, doc *export.Rollout) error {
	up, err := f.engine(cmp.Or(f.url, doc.Engine.URL), doc)
	if err != nil {
		return err
	}
	defer up.Close()
	var failed error
	err = show.Text(w, doc, func(ids []int32) (string, error) {
		if failed != nil {
			return "", failed
		}
		text, err := up.Detokenize(ctx, ids)
		failed = err
		return text, err
	})
	if err == nil && failed != nil {
		return fmt.Errorf("the engine at %s cannot decode the ids, so they are printed themselves: %w", up.URL(), failed)
	}
	return err
}
