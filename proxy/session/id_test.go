package session

import (
	"regexp"
	"testing"
)

// An id is a key: 160 random bits, none of them fixed, none of them twice.
func TestIDsCannotBeGuessed(t *testing.T) {
	form := regexp.MustCompile(`^s-[0-9a-f]{40}$`)
	seen := map[string]bool{}
	digits := [40]map[byte]int{}
	const n = 4000
	for range n {
		id := NewID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("%q, seen before: %t", id, seen[id])
		}
		seen[id] = true
		for i := range digits {
			if digits[i] == nil {
				digits[i] = map[byte]int{}
			}
			digits[i][id[i+2]]++
		}
	}
	for i, counts := range digits {
		for digit, times := range counts {
			if times > n/8 { // twice as often as by chance
				t.Errorf("digit %d is %c in %d of %d ids", i, digit, times, n)
			}
		}
	}
}
