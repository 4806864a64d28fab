package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Each migration brings the schema from one version to the next: the first file makes version 1. A file that was
// released is never changed.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrating is the advisory lock that lets one proxy at a time look after the schema.
const migrating = 0x63617074757265

// migrate creates the schema or brings it up to date, in one transaction, however many proxies start at once.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	slices.Sort(files)
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(migrating)); err != nil {
			return err
		}
		version, err := schemaVersion(ctx, tx)
		if err != nil {
			return err
		}
		if version > len(files) {
			return fmt.Errorf("the schema capture_proxy has version %d, this program knows up to %d: use a newer one", version, len(files))
		}
		for _, file := range files[version:] {
			text, err := migrations.ReadFile(file)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(text)); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		if version < len(files) {
			_, err = tx.Exec(ctx, "update capture_proxy.schema_version set version = $1", len(files))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: preparing the database: %w", err)
	}
	return nil
}

func schemaVersion(ctx context.Context, tx pgx.Tx) (version int, err error) {
	var there bool
	if err := tx.QueryRow(ctx, "select to_regclass('capture_proxy.schema_version') is not null").Scan(&there); err != nil {
		return 0, err
	}
	if !there {
		_, err := tx.Exec(ctx, `create schema if not exists capture_proxy;
			create table capture_proxy.schema_version (version int not null);
			insert into capture_proxy.schema_version values (0)`)
		return 0, err
	}
	err = tx.QueryRow(ctx, "select version from capture_proxy.schema_version").Scan(&version)
	return version, err
}
