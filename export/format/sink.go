package format

import (
	"io"

	"github.com/parquet-go/parquet-go"
)

// sink takes rows of one type, as JSON lines or as Parquet. tokens is the row's length.
type sink[T any] interface {
	put(row *T, tokens int) error
	close() error
}

func newSink[T any](w io.Writer, asParquet bool) sink[T] {
	if asParquet {
		return &parquetSink[T]{out: parquet.NewGenericWriter[T](w, parquet.Compression(&parquet.Zstd))}
	}
	return jsonSink[T]{newLines(w)}
}

type jsonSink[T any] struct{ lines *lines }

func (s jsonSink[T]) put(row *T, _ int) error { return s.lines.put(row) }
func (s jsonSink[T]) close() error            { return s.lines.close() }

// parquetSink writes a row group whenever enough tokens have come together: a row group is held in memory.
type parquetSink[T any] struct {
	out  *parquet.GenericWriter[T]
	held int
}

const tokensPerRowGroup = 1 << 20

func (s *parquetSink[T]) put(row *T, tokens int) error {
	if _, err := s.out.Write([]T{*row}); err != nil {
		return err
	}
	if s.held += tokens; s.held < tokensPerRowGroup {
		return nil
	}
	s.held = 0
	return s.out.Flush()
}

func (s *parquetSink[T]) close() error { return s.out.Close() }
