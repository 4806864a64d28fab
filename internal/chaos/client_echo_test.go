package chaos

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// echo is an engine that says the marker of the request that it was asked with, so that an answer shows whose it is.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	said := anyMarker.FindString(string(body))
	if said == "" {
		said = "no marker"
	}
	if strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "text/event-stream")
		const chunk = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"fake-model","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}` + "\n\n"
		fmt.Fprintf(w, chunk+chunk+"data: [DONE]\n\n", fmt.Sprintf(`{"role":"assistant","content":%q}`, said), "null", "{}", `"stop"`)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"c","object":"chat.completion","created":1,"model":"fake-model","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, said)
}
