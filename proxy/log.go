package proxy

import (
	"fmt"

	"go.uber.org/zap"

	"captureproxy/internal/record"
	"captureproxy/proxy/engine"
)

// The fields of this package's log lines. None of them ever holds a key: sessions ids are keys, so they are logged by a
// hash.

func sessionField(id string) zap.Field  { return zap.String("session", hashKey(id)) }
func requestField(id string) zap.Field  { return zap.String("request", id) }
func callField(number int) zap.Field    { return zap.Int("call", number) }
func errField(err error) zap.Field      { return zap.Error(err) }
func answerField(body []byte) zap.Field { return zap.String("answer", engine.Excerpt(body)) }
func faultField(fault any) zap.Field    { return zap.String("fault", fmt.Sprint(fault)) }
func stackField(stack []byte) zap.Field { return zap.ByteString("stack", stack) }

func outcomeField(o record.Outcome) zap.Field { return zap.String("outcome", string(o)) }
