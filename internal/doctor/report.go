package doctor

import "slices"

// A Report is a diagnosis with the data behind it, as `brim doctor` prints it.
type Report struct {
	Seen

	URI       string    `json:"mongo_uri"`      // without secrets; the command fills it in
	Class     Class     `json:"class"`          // the worst cause of slow writes; unknown if the engine's signals are
	Diagnosis []Finding `json:"diagnosis"`      // what is slow, then settings, then what could not be measured
	Note      string    `json:"note,omitempty"` // signals over their thresholds although nothing is wrong
}

// Report combines the diagnosis with the findings of CheckSettings.
func (s *Seen) Report(settings []Finding) *Report {
	all := slices.Concat(Diagnose(*s), settings)
	r := &Report{Seen: *s, Class: mostSevere(all), Note: s.Excused(), Diagnosis: []Finding{}}
	if s.Server.Why != "" && r.Class == Healthy {
		r.Class = Unknown // the remaining findings say nothing about writes
	}
	for _, kind := range []Kind{Slow, Setting, Unseen} {
		for _, f := range all {
			if f.Kind == kind && !r.explains(&f) {
				r.Diagnosis = append(r.Diagnosis, f)
			}
		}
	}
	return r
}

// explains reports whether a setting is already named as the cause of slow writes.
func (r *Report) explains(setting *Finding) bool {
	return setting.Name == "setting_history_window" && slices.ContainsFunc(r.Diagnosis, func(f Finding) bool { return f.Name == foundHistory })
}

// Healthy says that no cause of slow writes is known.
func (r *Report) Healthy() string {
	words := "nothing wrong"
	if r.Class == Unknown {
		return "unknown"
	}
	// Such as lagging members, which also slow writes down.
	if slices.ContainsFunc(r.Diagnosis, func(f Finding) bool { return f.Kind == Setting }) {
		words += " in the storage engine and its disk; the settings below may still cost"
	}
	if r.OverSeconds == 0 {
		words += ", as far as a single sample can tell: rates need a second sample"
	}
	return words
}
