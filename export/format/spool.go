package format

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// spool holds a list of JSON values in a temporary file, parted by commas. The file has no name: it is gone when the
// process ends, however it ends.
type spool struct {
	file *os.File
	buf  *bufio.Writer
}

func (s *spool) add(value []byte) error {
	first := s.file == nil
	if first {
		f, err := os.CreateTemp("", "capture-proxy-export-*")
		if err != nil {
			return fmt.Errorf("a temporary file is needed: %w", err)
		}
		if err := os.Remove(f.Name()); err != nil {
			return fmt.Errorf("a temporary file is needed: %w", err)
		}
		s.file, s.buf = f, bufio.NewWriterSize(f, 64<<10)
	} else if err := s.buf.WriteByte(','); err != nil {
		return err
	}
	_, err := s.buf.Write(value)
	return err
}

func (s *spool) copyTo(w io.Writer) error {
	if s.file == nil {
		return nil
	}
	if err := s.buf.Flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(w, s.file)
	return err
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
