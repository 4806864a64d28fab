package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// engineFlags say which engine answers, and how to talk to it.
type engineFlags struct {
	url, key, authHeader, model string
	provider, level             *choice
	firstByte, idle             time.Duration
}

func (f *engineFlags) add(flags *pflag.FlagSet) {
	f.provider = oneOf("auto", "vllm", "sglang", "llamacpp", "openai", "anthropic", "google")
	f.level = oneOf("auto", string(record.LevelTokens), string(record.LevelLogprobs), string(record.LevelText))
	flags.StringVar(&f.url, "upstream", "", "the engine's URL; without a path it gets /v1")
	flags.StringVar(&f.key, "upstream-key", "", "the engine's API key, never shown to a harness")
	flags.StringVar(&f.authHeader, "auth-header", "", "header that carries the engine's key, the provider's own by default: Authorization sends \"Bearer KEY\", any other the bare key")
	flags.StringVar(&f.model, "model", "", "model name to send upstream; found by itself when the engine serves exactly one")
	flags.Var(f.provider, "provider", f.provider.usage("what the engine is"))
	flags.Var(f.level, "capture-level", f.level.usage("what to capture; auto measures what the engine can return"))
	flags.DurationVar(&f.firstByte, "first-byte-timeout", 15*time.Minute, "longest wait for the first byte of an answer")
	flags.DurationVar(&f.idle, "idle-timeout", 10*time.Minute, "longest silence within an answer")
}

func (f *engineFlags) config() engine.Config {
	c := engine.Config{
		URL: f.url, Key: f.key, AuthHeader: f.authHeader, Model: f.model,
		Timeouts: engine.Timeouts{FirstByte: f.firstByte, Idle: f.idle},
	}
	if f.provider.value != "auto" {
		c.Provider = f.provider.value
	}
	if f.level.value != "auto" {
		c.Level = record.Level(f.level.value)
	}
	return c
}

// logFlags say what is logged, and how.
type logFlags struct {
	level, format *choice
}

func (f *logFlags) add(flags *pflag.FlagSet, level string) {
	f.level = &choice{level, []string{"debug", "info", "warn", "error"}}
	f.format = oneOf("console", "json")
	flags.Var(f.level, "log-level", f.level.usage("least severity that is logged, on standard error"))
	flags.Var(f.format, "log-format", f.format.usage("form of the log"))
}

// logger writes to the files that are named, to standard error when there are none.
func (f *logFlags) logger(files ...string) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(f.level.value)
	if err != nil {
		return nil, err
	}
	c := zap.NewProductionConfig()
	c.Level, c.Encoding, c.Sampling = zap.NewAtomicLevelAt(level), f.format.value, nil
	c.DisableCaller, c.DisableStacktrace = true, true
	c.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	c.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	if c.Encoding == "console" {
		c.EncoderConfig.EncodeLevel = zapcore.CapitalLevelEncoder
	}
	if len(files) > 0 {
		c.OutputPaths = files
	}
	logger, err := c.Build()
	if err != nil {
		return nil, fmt.Errorf("setting up the log: %w", err)
	}
	return logger, nil
}
