package ingest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// maxListed is how many refused readings an answer names; all are counted.
const maxListed = 100

// An answer is the result of a request with readings.
type answer struct {
	Accepted int              `json:"accepted"`
	Rejected int              `json:"rejected"`
	Ack      telemetry.Ack    `json:"ack,omitempty"` // that was reached; empty if no reading was accepted
	Errors   []refusedReading `json:"errors"`

	reasons  map[telemetry.Code]int
	repeated bool // it is the answer to the first request with this key
}

// appendTaken appends an answer without errors as encoding/json would encode it, and a
// newline.
func (a *answer) appendTaken(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"accepted":`...), int64(a.Accepted), 10)
	dst = strconv.AppendInt(append(dst, `,"rejected":`...), int64(a.Rejected), 10)
	dst = append(append(dst, `,"ack":"`...), a.Ack...) // one of two words
	return append(dst, `","errors":[]}`+"\n"...)
}

type refusedReading struct {
	Index   int            `json:"index"`
	Code    telemetry.Code `json:"code"`
	Message string         `json:"message"`
}

// An intake gathers the readings of one request. Decoders call begin, give the
// reading to the builder, and call end.
type intake struct {
	server  *Server
	want    telemetry.Ack
	key     string         // as the client sent it; empty: none
	part    string         // of several messages under the key, see scopedKey
	meaning meaning        // of the body
	hash    uint64         // of the body, only if there is a key
	builder *batch.Builder // nil after submit or close
	now     time.Time
	who     *access.Identity    // the sender
	target  *inputStream        // of the request
	stream  *inputStream        // of the current reading
	times   telemetry.TimeRange // of stream
	lease   *lease              // of the request; nil: unlimited
	ctx     context.Context     // of the request, for the lease
	count   int                 // readings begun
	dropped int                 // fields that were dropped
	lines   []uint32            // line protocol: the line number of each reading, from 1
	most    int                 // maximum of count
	message *Message            // source of the readings; nil: a request
	scope   []byte              // series of the message's topic; part of alias keys
	alias   []byte
	answer  answer

	mayBeEmpty bool // a request without readings is not an error
	remote     remote
	otlp       otlpTally
}

// open initializes the intake for a request to a stream.
func (in *intake) open(d *Server, stream *inputStream, want telemetry.Ack) {
	*in = intake{
		server: d, want: want, target: stream, most: d.config.MaxReadings, who: access.From(context.Background()),
	}
	in.answer.Errors = []refusedReading{}
}

// build creates the builder. It is called when the body has arrived, which is the time of receipt,
// and because a builder may use more memory than a connection without a lease may hold.
func (in *intake) build() {
	in.now = in.server.config.Now()
	in.builder = in.server.known.Builder(in.now)
	in.builder.MapDots = in.server.config.MapDots
	in.toStream(in.target)
	if in.who.Limited() {
		in.builder.AllowSensor = in.allowSensor
	}
}

// close releases the builder, unless submit did: then another request may be using it.
func (in *intake) close() {
	if in.builder != nil {
		in.builder.Release()
		in.builder = nil
	}
}

// toStream sets the stream of the next readings.
func (in *intake) toStream(stream *inputStream) {
	live := stream.live.Load()
	unit := in.times.Unit
	in.stream, in.times, in.builder.Fields = stream, in.server.times(in.now, live), live.fields
	in.times.Unit = unit
}

// begin starts the next reading, unless there are too many.
func (in *intake) begin() error {
	if in.count >= in.most {
		return in.tooMany()
	}
	if in.count%extendEvery == extendEvery-1 {
		if err := in.extendLease(0); err != nil {
			return err
		}
	}
	if in.count%yieldEvery == yieldEvery-1 {
		runtime.Gosched()
	}
	in.builder.Begin(in.stream.Name, in.count, in.times)
	in.count++
	return nil
}

// extendEvery is how often, in readings, the lease is extended. A reading has at most 256
// values.
const extendEvery = 64

// yieldEvery is how often, in readings, the goroutine yields the CPU, for the same reason as
// turnBytes.
const yieldEvery = 4 * extendEvery

// extendLease extends the lease if the decoded readings and this many bytes of scratch
// memory need more than was estimated. Columns of small numbers take many times their
// encoded length.
func (in *intake) extendLease(scratch int64) error {
	if in.lease == nil {
		return nil
	}
	return in.lease.reach(in.ctx, batchCost*in.builder.Size()+decodedCost*scratch)
}

// undo discards the current reading.
func (in *intake) undo() {
	in.builder.Undo()
	in.count--
}

// restart discards what was decoded of the current reading and begins it again.
func (in *intake) restart() {
	in.undo()
	_ = in.begin() // it did not fail before
}

func (in *intake) tooMany() error {
	most := in.most
	if in.message != nil { // the ones before it do not count
		most = in.server.config.MaxReadings
	}
	return telemetry.Errorf(telemetry.TooLarge, codeTooMany,
		"the request contains more than %d readings (--max-readings-per-request); nothing was accepted, send smaller requests", most)
}

// end finishes the reading and reports whether it was accepted.
func (in *intake) end() bool { return in.ended(in.builder.End()) }

// ended records the result of a reading.
func (in *intake) ended(r *telemetry.Refusal) (taken bool) {
	if r != nil {
		in.refused(in.count-1, r)
	}
	return r == nil
}

func (in *intake) refused(index int, r *telemetry.Refusal) {
	in.tally(r.Code)
	if len(in.answer.Errors) < maxListed {
		in.answer.Errors = append(in.answer.Errors, refusedReading{Index: index, Code: r.Code, Message: r.Message})
	}
}

func (in *intake) tally(code telemetry.Code) {
	if in.answer.reasons == nil {
		in.answer.reasons = make(map[telemetry.Code]int)
	}
	in.answer.reasons[code]++
	in.answer.Rejected++
}

// take decodes a payload, frees its buffer, and appends its readings.
func (in *intake) take(p *payload, decode func([]byte) error) (result, error) {
	in.build()
	err := decode(p.data)
	if err == nil && in.key != "" {
		in.hash = bodyHash(p.data, in.meaning)
	}
	p.free()
	if err != nil {
		return resultOf(telemetry.KindOf(err)), err
	}
	return in.append(in.ctx)
}

// append submits the accepted readings and waits for the journal. If the key of the request
// is known, the answer is that of the first request, even if the readings would be refused
// now. After an error, the answer is empty.
func (in *intake) append(ctx context.Context) (result, error) {
	if in.count == 0 && in.mayBeEmpty {
		return allTaken, nil
	}
	if in.count == 0 {
		return invalid, telemetry.Errorf(telemetry.Invalid, codeNoReadings, "the request contains no readings")
	}
	taken, receipt, err := in.submit(ctx)
	switch {
	case err == nil && receipt.Repeated:
		in.who.Refund(taken)
		err = in.repeat(receipt.Answer)
	case err == nil && taken == 0 && in.answer.reasons[telemetry.SensorForbidden] == in.answer.Rejected:
		return noneAllowed, nil
	case err == nil && taken == 0:
		return nothingTaken, nil
	}
	if err != nil {
		in.answer = answer{}
		err = in.appendError(ctx, err)
		kind := telemetry.KindOf(err)
		if kind != telemetry.UnknownOutcome && kind != telemetry.Internal { // these stay charged
			in.who.Refund(taken)
		}
		return resultOf(kind), err
	}
	if in.dropped > 0 && !in.answer.repeated {
		in.server.metrics.dropped.Add(float64(in.dropped))
	}
	in.refusedByStore(receipt.Refused)
	in.answer.Accepted = in.count - in.answer.Rejected
	if in.answer.Accepted == 0 {
		return nothingTaken, nil
	}
	in.answer.Ack = receipt.Ack
	switch {
	case in.answer.Rejected > 0:
		return partlyTaken, nil
	case in.want == telemetry.Stored && receipt.Ack != telemetry.Stored:
		return notYetStored, nil
	}
	return allTaken, nil
}

// submit passes the accepted readings to the journal, or looks up the key there if there are
// none. taken is how many were charged to the sender's quota.
func (in *intake) submit(ctx context.Context) (taken int, receipt batch.Receipt, err error) {
	request := in.request()
	if in.builder.Len() == 0 {
		if in.key != "" {
			receipt, err = in.server.journal.Repeat(ctx, request)
		}
		return 0, receipt, err
	}
	in.dropped = in.builder.Dropped
	made := in.builder.Batch()
	in.builder = nil
	taken = made.Len() // now, since after Append the batch is the journal's
	if err := in.shrinkLease(ctx, made, &request); err != nil {
		return 0, receipt, err
	}
	if err := in.admit(made); err != nil {
		return 0, receipt, err
	}
	receipt, err = in.server.journal.Append(ctx, made, request)
	return taken, receipt, err
}

// shrinkLease reduces the lease to the memory of the batch, until the journal has it. A
// request without a lease gets one, since any number of such requests may wait while the
// journal hangs.
func (in *intake) shrinkLease(ctx context.Context, made *batch.Batch, r *batch.Request) error {
	if in.lease == nil {
		return nil
	}
	r.Memory = in.lease
	cost := batchCost * made.MemorySize()
	if in.lease.size == 0 {
		return in.lease.reach(ctx, cost)
	}
	in.lease.keep(cost)
	return nil
}

// request returns the request to the journal.
func (in *intake) request() batch.Request {
	r := batch.Request{Want: in.want}
	if in.key != "" {
		r.Key, r.BodyHash = scopedKey(in.who.Name, in.target.Name, in.key, in.part), in.hash
		r.Answer = in.answer.encode(in.builder.Len())
		if in.message != nil { // a repetition finds out again what is refused
			r.Answer = new(answer).encode(in.count)
		}
	}
	return r
}

// repeat sets the answer to that of the first request with this key. The two may differ,
// because some rules depend on the time.
func (in *intake) repeat(kept []byte) error {
	a, err := decodeAnswer(kept)
	if err == nil && a.Accepted+a.Rejected != in.count {
		err = errBadAnswer
	}
	if err != nil {
		return fmt.Errorf("repeat answer: %w", err)
	}
	if a.Rejected > 0 && len(a.Errors) == 0 { // an earlier release kept it
		if a.Errors, a.reasons = in.answer.Errors, in.answer.reasons; a.Rejected != in.answer.Rejected {
			a.Errors = []refusedReading{{Code: codeKey, Message: "some readings were refused when the request was first sent; their errors are no longer known"}}
			a.reasons = map[telemetry.Code]int{codeKey: a.Rejected}
		}
	}
	a.repeated = true
	in.answer = a
	return nil
}

// appendError returns an error with a kind.
func (in *intake) appendError(ctx context.Context, err error) error {
	if _, known := errors.AsType[*telemetry.Error](err); known || ctx.Err() == nil {
		return err
	}
	return &telemetry.Error{
		Kind: telemetry.UnknownOutcome, Code: codeOutcomeUnknown,
		Message: "the request ended before its readings were known to be stored", Err: err,
	}
}

// refusedByStore adds readings that the database refused to the other refused ones.
func (in *intake) refusedByStore(late []batch.Refused) {
	all := in.answer.Errors
	for _, r := range late {
		in.tally(r.Refusal.Code)
		if in.remote.samples != nil {
			in.remote.samples[r.Index] = 0
		}
		all = append(all, refusedReading{Index: r.Index, Code: r.Refusal.Code, Message: r.Refusal.Message})
	}
	slices.SortStableFunc(all, func(x, y refusedReading) int { return x.Index - y.Index })
	in.answer.Errors = all[:min(len(all), maxListed)]
}

// maxAlias is the maximum length of an alias key, a part of a request. Longer parts are
// decoded each time.
const maxAlias = 4 << 10
