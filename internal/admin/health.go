package admin

import (
	"encoding/json"
	"net/http"
)

// health answers whether the process lives; only a restart could help where it
// does not, so nothing that comes and goes by itself belongs in here.
func (h *handler) health(w http.ResponseWriter, _ *http.Request) {
	h.write(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready bool   `json:"ready"`
	Parts []Part `json:"parts"`
}

// ready answers whether readings can be taken now: 200, or 503 with the reason
// beside each part that is not. An optional part does not count.
func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	parts := h.cfg.Parts()
	r := readiness{Ready: Ready(parts), Parts: parts}
	code := http.StatusOK
	if !r.Ready {
		code = http.StatusServiceUnavailable
	}
	h.write(w, code, r)
}

func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	h.write(w, http.StatusOK, h.cfg.Status())
}

// write answers with v as indented JSON, for it is read by people, too.
func (h *handler) write(w http.ResponseWriter, code int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		h.cfg.Logger.Error("encode an admin answer", "err", err)
		http.Error(w, "the answer cannot be encoded; the daemon's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // fails only if the client is gone
}
