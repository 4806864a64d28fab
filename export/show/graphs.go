package show

import (
	"fmt"
	"io"
	"strings"

	"captureproxy/export"
)

// Mermaid writes the graph as a Mermaid flowchart.
func Mermaid(w io.Writer, r *export.Rollout) error {
	p := &printer{w: w}
	role, number := Roles(r), numbers(r)
	p.linef("flowchart TD")
	for i := range r.Turns {
		t := &r.Turns[i]
		p.linef(`  n%d["%s"]:::%s`, i, entities(label(t)), class(t, role))
	}
	for i := range r.Turns {
		t := &r.Turns[i]
		if from, ok := number[t.ParentID]; ok {
			p.linef("  n%d --> n%d", from, i)
		}
		if from, ok := number[t.Continues]; ok && t.Break != nil {
			p.linef(`  n%d -. "%s" .-> n%d`, from, entities(clean(t.Break.Cause)), i)
		}
	}
	p.linef("  classDef agent fill:#dff5e1,stroke:#2e7d32")
	p.linef("  classDef auxiliary fill:#eeeeee,stroke:#757575")
	p.linef("  classDef discarded fill:#fdecea,stroke:#c62828,stroke-dasharray:4")
	return p.err
}

// Dot writes the graph for Graphviz.
func Dot(w io.Writer, r *export.Rollout) error {
	p := &printer{w: w}
	role, number := Roles(r), numbers(r)
	style := map[string]string{
		string(export.Agent):     `color="#2e7d32"`,
		string(export.Auxiliary): `color="#757575",fontcolor="#757575"`,
		string(export.Discarded): `color="#c62828",style=dashed`,
	}
	p.linef("digraph rollout {")
	p.linef("  node [shape=box];")
	for i := range r.Turns {
		t := &r.Turns[i]
		p.linef("  n%d [label=%s,%s];", i, dotQuote(label(t)), style[class(t, role)])
	}
	for i := range r.Turns {
		t := &r.Turns[i]
		if from, ok := number[t.ParentID]; ok {
			p.linef("  n%d -> n%d;", from, i)
		}
		if from, ok := number[t.Continues]; ok && t.Break != nil {
			p.linef("  n%d -> n%d [style=dotted,label=%s];", from, i, dotQuote(clean(t.Break.Cause)))
		}
	}
	p.linef("}")
	return p.err
}

// numbers names the turns by their place: ids from a document are foreign text and name nothing in a drawing.
func numbers(r *export.Rollout) map[string]int {
	at := make(map[string]int, len(r.Turns))
	for i := range r.Turns {
		at[r.Turns[i].NodeID] = i
	}
	return at
}

func class(t *export.Turn, role map[string]export.Role) string {
	switch c := role[t.NodeID]; c {
	case export.Agent, export.Auxiliary, export.Discarded:
		return string(c)
	}
	return string(export.Auxiliary)
}

// entities writes every character that Mermaid or HTML could read as its own as a character code.
func entities(s string) string {
	var b strings.Builder
	for _, c := range s {
		if strings.ContainsRune("\"<>&#;`|{}[]()\\", c) {
			fmt.Fprintf(&b, "#%d;", c)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func dotQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
