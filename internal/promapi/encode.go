package promapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	jsoniter "github.com/json-iterator/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/jsonutil"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An answer is the data of a successful request: a value for encoding/json, labels, or the value
// of a query.
type answer struct {
	data     any
	encoded  []byte // the data as JSON; nil: each reply encodes it
	warnings []string
	infos    []string
	close    func() // releases the data; may be nil
}

// An result is the answer to a request, or an error.
type result struct {
	answer

	kind    kind
	problem *telemetry.Error // nil: success
}

// labelSets are the labels of series.
type labelSets []labels.Labels

// write writes a JSON response.
func (a *API) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // fails only if the client is gone
}

// piece is the size of a stream's buffer in bytes.
const piece = 64 << 10

// clientTimeout is how long a client may take to read an answer. The request holds a slot
// meanwhile.
const clientTimeout = 10 * time.Second

// reply writes a result, and returns the code for the metrics. Several exchanges may write the
// same result.
func (x *exchange) reply(out *result) string {
	if x.r.Context().Err() != nil {
		return codeGone
	}
	if out.problem != nil {
		x.api.answerProblem(x.w, out.kind, out.problem)
		return strconv.Itoa(out.kind.status)
	}
	control := http.NewResponseController(x.w)
	if control.SetWriteDeadline(time.Now().Add(clientTimeout)) == nil {
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // setting it succeeded just now
	}
	x.w.Header().Set("Content-Type", "application/json")
	s := jsoniter.NewStream(jsoniter.ConfigCompatibleWithStandardLibrary, x.w, piece)
	s.WriteRaw(`{"status":"success","data":`)
	if out.encoded == nil {
		writeData(s, out.data)
	} else if s.Flush() == nil {
		_, s.Error = x.w.Write(out.encoded)
	}
	writeStrings(s, "warnings", out.warnings)
	writeStrings(s, "infos", out.infos)
	s.WriteRaw("}")
	if s.Flush() != nil {
		return codeGone
	}
	return strconv.Itoa(http.StatusOK)
}

func writeStrings(s *jsoniter.Stream, name string, list []string) {
	if len(list) == 0 {
		return
	}
	s.WriteMore()
	s.WriteObjectField(name)
	s.WriteVal(list)
}

// mostEncoded is the maximum size of an answer that is kept as JSON, in bytes.
const mostEncoded = 8 << 20

var errTooLarge = errors.New("the answer is too large to be kept")

// encoding is a buffer that refuses to grow beyond mostEncoded.
type encoding struct{ bytes.Buffer }

func (e *encoding) Write(p []byte) (int, error) {
	if e.Len()+len(p) > mostEncoded {
		return 0, errTooLarge
	}
	return e.Buffer.Write(p)
}

// encode encodes the data, unless that is large, so that equal requests do not encode it once each,
// and all at once.
func (a *answer) encode() {
	var out encoding
	s := jsoniter.NewStream(jsoniter.ConfigCompatibleWithStandardLibrary, &out, piece)
	if writeData(s, a.data); s.Flush() == nil {
		a.encoded = out.Bytes()
	}
}

func writeData(s *jsoniter.Stream, data any) {
	switch v := data.(type) {
	case labelSets:
		writeList(s, v, writeLabels)
	case promql.Matrix:
		s.WriteRaw(`{"resultType":"matrix","result":`)
		writeList(s, v, writeSeries)
		s.WriteRaw("}")
	case promql.Vector:
		s.WriteRaw(`{"resultType":"vector","result":`)
		writeList(s, v, writeSample)
		s.WriteRaw("}")
	case promql.Scalar:
		s.WriteRaw(`{"resultType":"scalar","result":`)
		writePoint(s, promql.FPoint{T: v.T, F: v.V})
		s.WriteRaw("}")
	case promql.String:
		s.WriteRaw(`{"resultType":"string","result":[`)
		jsonutil.MarshalTimestamp(v.T, s)
		s.WriteMore()
		s.WriteString(v.V)
		s.WriteRaw("]}")
	default:
		s.WriteVal(v)
	}
}

// writeList writes an array, and flushes from time to time.
func writeList[T any](s *jsoniter.Stream, list []T, write func(*jsoniter.Stream, T)) {
	s.WriteArrayStart()
	for i, one := range list {
		if i > 0 {
			s.WriteMore()
		}
		write(s, one)
		if s.Buffered() > 32<<10 && s.Flush() != nil {
			return // the client is gone; the final Flush fails again
		}
	}
	s.WriteArrayEnd()
}

func writeLabels(s *jsoniter.Stream, l labels.Labels) {
	s.WriteObjectStart()
	first := true
	l.Range(func(one labels.Label) {
		if !first {
			s.WriteMore()
		}
		first = false
		s.WriteString(one.Name)
		s.WriteRaw(":")
		s.WriteString(one.Value)
	})
	s.WriteObjectEnd()
}

func writePoint(s *jsoniter.Stream, p promql.FPoint) {
	s.WriteArrayStart()
	jsonutil.MarshalTimestamp(p.T, s)
	s.WriteMore()
	jsonutil.MarshalFloat(p.F, s)
	s.WriteArrayEnd()
}

func writeSample(s *jsoniter.Stream, one promql.Sample) {
	s.WriteRaw(`{"metric":`)
	writeLabels(s, one.Metric)
	s.WriteRaw(`,"value":`)
	writePoint(s, promql.FPoint{T: one.T, F: one.F})
	s.WriteRaw("}")
}

func writeSeries(s *jsoniter.Stream, one promql.Series) {
	s.WriteRaw(`{"metric":`)
	writeLabels(s, one.Metric)
	s.WriteRaw(`,"values":[`)
	for i, p := range one.Floats {
		if i > 0 {
			s.WriteMore()
		}
		writePoint(s, p)
	}
	s.WriteRaw("]}")
}
