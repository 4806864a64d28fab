package show

import (
	"testing"

	"captureproxy/graph"
)

func TestEveryCauseHasWords(t *testing.T) {
	unknown, _ := Cause("")
	for _, c := range []graph.Cause{
		graph.SystemChanged, graph.ToolsChanged, graph.ThinkingRemoved, graph.ToolCallReserialised, graph.HistoryRewritten, graph.Retokenised, graph.Template,
	} {
		if what, avoid := Cause(string(c)); what == unknown || avoid == "" {
			t.Errorf("%s is %q: %q", c, what, avoid)
		}
	}
}
