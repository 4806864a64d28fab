package store_test

import (
	"testing"

	"captureproxy/store"
	"captureproxy/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		l, err := store.Open(t.TempDir(), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}

// TestConformanceSmallSegments has every few calls begin a new segment, on a disk that is quick.
func TestConformanceSmallSegments(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		l, err := store.Open(t.TempDir(), noSync())
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}
