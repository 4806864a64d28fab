package control

import "encoding/json"

// applyRun changes a run, which may be nil, and checks what comes out.
func applyRun(old json.RawMessage, patch Optional[RunPatch]) (json.RawMessage, error) {
	switch {
	case !patch.Set:
		return old, nil
	case patch.Value == nil:
		return nil, nil
	}
	var run Run
	if len(old) > 0 {
		if err := json.Unmarshal(old, &run); err != nil {
			return nil, err
		}
	}
	p := patch.Value
	set(&run.Kind, p.Kind)
	set(&run.ID, p.ID)
	switch m := p.Metadata; {
	case m.Set && m.Value == nil:
		run.Metadata = nil
	case m.Set:
		if run.Metadata == nil {
			run.Metadata = &RunMetadata{}
		}
		set(&run.Metadata.Kind, m.Value.Kind)
		if step := m.Value.Step; step.Set {
			run.Metadata.Step = step.Value
		}
	}
	if err := run.check(); err != nil {
		return nil, err
	}
	return run.json(), nil
}

// set writes a value where there is one; null removes.
func set(dst *string, o Optional[string]) {
	if !o.Set {
		return
	}
	*dst = ""
	if o.Value != nil {
		*dst = *o.Value
	}
}
