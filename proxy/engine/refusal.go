package engine

import (
	"regexp"
	"slices"
	"strings"
)

// Fix is one edit of the request's parameters that an engine asked for by refusing a call (WIRE 6). Dropping logprobs
// takes top_logprobs along.
type Fix struct {
	Param     string `json:"param"`
	To        string `json:"to,omitempty"`     // the value to set, as JSON; "" leaves the parameter out
	Rename    string `json:"rename,omitempty"` // the name under which the value goes instead, "" for none
	Behaviour bool   `json:"behaviour,omitempty"`
	Why       string `json:"why"`
}

// ReadRefusal reads an engine's refusal of a call and says which single edit it asks for. has tells whether the submitted
// body has a field, dotted for one inside an object. It is pure. What the engine names in its own field for that wins over
// its prose, and prose counts only where it quotes a field that the body has: a guess would change what the harness asked for.
func ReadRefusal(status int, body []byte, has func(param string) bool) (Fix, bool) {
	if status != 400 && status != 422 && status != 403 {
		return Fix{}, false
	}
	for _, c := range complaints(body) {
		f, ok := c.read(has)
		if status == 403 { // anything else that is forbidden is the credential's matter
			if !ok && strings.Contains(c.text, "logprobs") && has("logprobs") {
				f, ok = c.fix(Fix{Param: "logprobs"})
			}
			ok = ok && (f.Param == "logprobs" || f.Param == "top_logprobs")
		}
		if ok {
			return f, true
		}
	}
	return Fix{}, false
}

// untouchable are the fields that no refusal changes: they are what the call is about.
var untouchable = []string{"model", "messages", "input", "tools", "tool_choice", "stream"}

// legacy maps the old name of a pair to the new one; where an engine refuses both at once the old one goes.
var legacy = map[string]string{"max_tokens": "max_completion_tokens", "functions": "tools", "function_call": "tool_choice"}

// behavioural are the fields whose loss changes what the model says, by the beginning of their names.
var behavioural = []string{
	"temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "stop", "seed",
	"response_format", "text.", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs", "verbosity",
}

const (
	quote = "['\"`\u2018\u2019\u201c\u201d]"
	field = quote + `([A-Za-z_][\w.\-\[\]]{0,80})` + quote
)

var (
	// sense is what the text or code of a complaint must say for its parameter to go. An engine that merely finds a value too
	// large names the parameter too, and that quarrel is the harness's own.
	sense = regexp.MustCompile(`(?i)unsupported|n[o']t supp|unknown|unrecogni[sz]ed|unexpected (?:field|param|arg|keyword)|not permitted|not allowed|` +
		`deprecated|no longer|not available|not enabled|extra[_ ](?:forbidden|inputs|fields)|only (?:be )?(?:allowed|supported|defined|set) |cannot find field|` + `\bremove\b`)
	atOnce    = regexp.MustCompile(`(?i)at the same time|cannot both|mutually exclusive|simultaneously|(?:supported|used|specified|set|combined|provided) together`)
	anyField  = regexp.MustCompile(field)
	useOther  = regexp.MustCompile(`(?i)\buse ` + field + ` instead`)
	setTo     = regexp.MustCompile(`(?i)\bset ` + quote + `?([A-Za-z_][\w.]{0,80}?)` + quote + `? to ` + quote + `?([\w.\-]{1,40}?)` + quote + `?(?:[\s.,;)]|$)`)
	mayOnly   = regexp.MustCompile(`(?i)` + field + ` may only be set to ` + quote + `?([\w.\-]{1,40}?)` + quote + `?(?:[\s.,;)]|$)`)
	supplied  = regexp.MustCompile(`(?i)unrecogni[sz]ed request arguments? supplied: ([\w., \-]{1,400})`)
	firstWord = regexp.MustCompile(`^([A-Za-z_]\w{0,80}): Extra inputs are not permitted`)
	// named are the wordings that quote a field which is to go.
	named = []*regexp.Regexp{
		regexp.MustCompile(`(?i)(?:unsupported|unknown|unrecogni[sz]ed|deprecated|unexpected) (?:request )?(?:parameter|argument|field|name|key|value|property|keyword argument|option)s?:? ?\[?` + field),
		regexp.MustCompile(`(?i)` + field + ` (?:parameter |field |option |argument )?(?:is|are|was|has been) (?:currently |only )?(?:deprecated|not supported|unsupported|not permitted|not allowed|unknown|` +
			`not recogni[sz]ed|no longer supported|not available|not enabled|not a supported|not a valid parameter|allowed when|supported when)`),
		regexp.MustCompile(`(?i)` + field + ` does(?: not|n't) support`),
		regexp.MustCompile(`(?i)(?:does not|doesn't|do not|don't|not) support (?:the )?(?:use of )?(?:parameter|field|option|argument)?s?:? ?\[?` + field),
		regexp.MustCompile(`(?i)extra (?:inputs|fields) (?:are )?not permitted, field: ` + field),
		regexp.MustCompile(`\('body', ` + field + `\), 'msg': 'Extra inputs are not permitted'`), // a validator's own words, as text
		regexp.MustCompile(`(?i)\bremove (?:the )?(?:parameter |field )?` + field),
	}
)

// read says which edit a complaint asks for.
func (c *complaint) read(has func(string) bool) (Fix, bool) {
	if atOnce.MatchString(c.text) {
		if old := olderOf(anyField.FindAllStringSubmatch(c.text, -1)); old != "" && has(old) {
			return c.fix(Fix{Param: old})
		}
		return Fix{}, false
	}
	subject := func(x string) bool { return c.param == "" || c.param == x }
	for _, pattern := range []*regexp.Regexp{setTo, mayOnly} {
		for _, m := range pattern.FindAllStringSubmatch(c.text, -1) {
			known := has(m[1]) || m[1] == c.param || strings.Contains(m[1], "_")
			if subject(m[1]) && known {
				return c.fix(Fix{Param: m[1], To: literal(m[2])})
			}
		}
	}
	if c.param != "" {
		if !has(c.param) || !sense.MatchString(c.text) && !sense.MatchString(strings.ReplaceAll(c.code, "_", " ")) {
			return Fix{}, false
		}
		return c.drop(c.param, has)
	}
	if m := supplied.FindStringSubmatch(c.text); m != nil {
		for name := range strings.SplitSeq(m[1], ",") {
			if name = strings.Trim(name, " ."); has(name) {
				return c.drop(name, has)
			}
		}
	}
	for _, pattern := range append(named[:len(named):len(named)], firstWord) {
		for _, m := range pattern.FindAllStringSubmatch(c.text, -1) {
			if has(m[1]) {
				return c.drop(m[1], has)
			}
		}
	}
	return Fix{}, false
}

// drop takes a field out, or lets it go under the name that the complaint gives it.
func (c *complaint) drop(param string, has func(string) bool) (Fix, bool) {
	f := Fix{Param: param}
	if m := useOther.FindStringSubmatch(c.text); m != nil && m[1] != param {
		if slices.Contains(untouchable, root(m[1])) {
			return Fix{}, false
		}
		if !has(m[1]) {
			f.Rename = m[1]
		}
	}
	return c.fix(f)
}

// fix finishes an edit, refusing one that must not be made.
func (c *complaint) fix(f Fix) (Fix, bool) {
	if slices.Contains(untouchable, root(f.Param)) || strings.ContainsAny(f.Param, "[]") {
		return Fix{}, false
	}
	f.Why = "the engine refused it: " + Excerpt([]byte(c.text))
	f.Behaviour = f.Rename == "" && slices.ContainsFunc(behavioural, func(b string) bool { return strings.HasPrefix(f.Param, b) })
	return f, true
}

// root is the top-level field of a dotted one.
func root(param string) string {
	if i := strings.IndexAny(param, ".["); i >= 0 {
		return param[:i]
	}
	return param
}

// olderOf returns the old name of a known pair among the fields that a complaint quotes.
func olderOf(quoted [][]string) string {
	for _, a := range quoted {
		for _, b := range quoted {
			if legacy[a[1]] == b[1] && b[1] != "" {
				return a[1]
			}
		}
	}
	return ""
}
