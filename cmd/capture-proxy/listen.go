package main

import (
	"net"
	"strings"
)

// checkListen refuses an address that would leave the control API open to a network.
func checkListen(address, adminKey string, allowUnregistered bool) error {
	_, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return usagef("--listen %s: write it as host:port, as in 127.0.0.1:8100", address)
	case onLoopback(address):
		return nil
	case adminKey == "":
		return usagef("--listen %s can be reached from other machines, and without an admin key so could the control API: "+
			"set --admin-key (or CAPTURE_PROXY_ADMIN_KEY), or listen on 127.0.0.1", address)
	case allowUnregistered:
		return usagef("--allow-unregistered makes a session for any key, so it works on loopback only: listen on 127.0.0.1")
	}
	return nil
}

// onLoopback reports whether an address is reached from this machine only.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback())
}

// baseURL is how a listener is reached from this machine.
func baseURL(listener net.Listener) string {
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
