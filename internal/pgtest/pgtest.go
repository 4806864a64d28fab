// Package pgtest starts a throwaway PostgreSQL for tests, from the binaries that Debian's package postgresql installs:
//
//	server, err := pgtest.Start()
//	defer server.Close()
//	url, err := server.Database(ctx)
//
// Its data lies in a temporary directory and is gone after Close. It listens on a loopback port and trusts everybody on
// this machine. PostgreSQL refuses to run as root, so root runs it as the user postgres.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a PostgreSQL of a test's own.
type Server struct {
	dir     string
	bin     string
	port    int
	as      *syscall.Credential
	log     bytes.Buffer
	process *exec.Cmd
	number  atomic.Int64 // of databases made
}

// Start makes a cluster and starts a server for it.
func Start() (*Server, error) {
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(bins) == 0 {
		return nil, errors.New("PostgreSQL is not installed under /usr/lib/postgresql: `./test unit` installs it, or apt-get install postgresql")
	}
	slices.Sort(bins)
	s := &Server{bin: filepath.Dir(bins[len(bins)-1])}
	if s.dir, err = os.MkdirTemp("", "pgtest-"); err != nil {
		return nil, err
	}
	if err := errors.Join(s.owner(), s.freePort()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	initdb := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w\n%s", err, out), s.Close())
	}
	if err := s.Resume(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// owner gives the directory to the user that the server runs as.
func (s *Server) owner() error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return fmt.Errorf("PostgreSQL does not run as root and there is no user postgres: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return errors.Join(err1, err2, os.Chown(s.dir, int(uid), int(gid)))
}

func (s *Server) freePort() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	return l.Close()
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Setpgid: true}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") }), "LC_ALL=C.UTF-8")
	return cmd
}

// Resume starts the server again and waits until it answers.
func (s *Server) Resume() error {
	s.log.Reset()
	s.process = s.command("postgres", "-D", s.data(), "-k", s.dir, "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=100", "-c", "shared_buffers=32MB")
	s.process.Stdout, s.process.Stderr = &s.log, &s.log
	s.process.SysProcAttr.Pdeathsig = syscall.SIGQUIT // a test that is killed leaves no server behind
	if err := s.process.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			halting := s.Halt(true)
			return errors.Join(fmt.Errorf("PostgreSQL does not start: %w\n%s", err, s.log.String()), halting)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Halt stops the server: in good order, or at once, as when it crashes.
func (s *Server) Halt(atOnce bool) error {
	if s.process == nil {
		return nil
	}
	signal := syscall.SIGINT
	if atOnce {
		signal = syscall.SIGQUIT
	}
	err := s.process.Process.Signal(signal)
	waiting := s.process.Wait() // whose error is only that of a signal
	s.process = nil
	if err != nil {
		return errors.Join(err, waiting)
	}
	return nil
}

// URL is the address of one of the server's databases. It holds a password, which the server does not ask for.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres:hush-hush@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

// Database makes an empty database and returns its address.
func (s *Server) Database(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("test%d", s.number.Add(1))
	_, err = conn.Exec(ctx, "create database "+name)
	return s.URL(name), errors.Join(err, conn.Close(ctx))
}

// Close stops the server and removes its data.
func (s *Server) Close() error {
	return errors.Join(s.Halt(true), os.RemoveAll(s.dir))
}
