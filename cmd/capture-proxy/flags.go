package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// choice is a flag that takes one of a few words.
type choice struct {
	value   string
	allowed []string
}

func oneOf(value string, others ...string) *choice {
	return &choice{value: value, allowed: append([]string{value}, others...)}
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "word" }

// usage is a flag's usage text with the words in it.
func (c *choice) usage(text string) string { return text + ": " + strings.Join(c.allowed, ", ") }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(c.allowed, ", "))
	}
	c.value = s
	return nil
}

// size is a flag that takes a number of bytes, as in 64MiB.
type size int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

func (s *size) Type() string { return "size" }

func (s *size) String() string {
	for _, u := range sizeUnits[:3] {
		if n := int64(*s) / u.factor; int64(*s)%u.factor == 0 && n > 0 && n < 1<<10 {
			return strconv.FormatInt(n, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

func (s *size) Set(text string) error {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/u.factor {
			break
		}
		*s = size(n * u.factor)
		return nil
	}
	return fmt.Errorf("%q is no size above zero, write it as 64MiB", text)
}

// pairs is a repeatable flag that takes name=value.
type pairs map[string]string

func (p pairs) Type() string { return "name=value" }

func (p pairs) String() string {
	var all []string
	for name, value := range p {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func (p pairs) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not of the form name=value", text)
	}
	p[name] = value
	return nil
}
