package control

import "net/http"

// Policy is the version of the weights that are live.
type Policy struct {
	Version *int64 `json:"version"` // null while nobody has said
}

type policyRequest struct {
	Version *Whole `json:"version"`
}

func (a *API) setPolicy(w http.ResponseWriter, r *http.Request) error {
	var req policyRequest
	if err := decode(w, r, &req, false); err != nil {
		return err
	}
	if req.Version == nil {
		return invalid("version", "a whole number is needed")
	}
	version := int64(*req.Version)
	if err := a.Sessions.SetPolicy(r.Context(), version); err != nil {
		return err
	}
	writeJSON(w, Policy{Version: &version})
	return nil
}

func (a *API) showPolicy(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, Policy{Version: a.Sessions.Policy()})
	return nil
}
