// Package e2e tests the built binary from outside: real agents, the official SDKs and real engines on either side of it,
// on loopback.
//
// Its tests carry the build tag e2e, for they need programs that ./test installs into a cache folder:
//
//	./test e2e                       all of them
//	./test TestAgents                one of them
//
// Every process that a test starts is its own child and ends with it.
package e2e
