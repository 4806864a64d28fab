package bench

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Target is what load is put on.
type Target struct {
	Addr  string // host:port
	Path  string // of the API root, "/v1"
	Model string // "" for the engine's own name
	// Headers are further ones, "Name: value". A key takes the place of an Authorization among them.
	Headers []string
}

func (t Target) model() string {
	if t.Model != "" {
		return t.Model
	}
	return Model
}

// Job is work for the load generator: standard calls on some connections, one at a time on each.
type Job struct {
	Target Target
	Keys   []string // API keys; connection i takes the i-th, round and round
	Paths  []string // of the API root, where they differ from connection to connection; as the keys
	Conns  int
	For    time.Duration // how long; 0 when Calls says how many per connection
	Calls  int
	Warmup time.Duration // not counted
	// Patience is how long after the job's end its last answers may come; 0 for as long as they take.
	Patience time.Duration
	Rate     float64 // calls per second over all connections, 0 for as many as are answered
	Stream   bool
	Chunks   int // of a stream
	Gap      time.Duration
	First    int64     // connection i sends the numbers from First + i * stride on
	Spread   int       // number of loopback addresses to connect from
	Long     []LongJob // when there are any, nothing else is done; they run at the same time
}

// stride is the distance between the numbers of two connections.
const stride = 100_000

// Result is what came of a job.
type Result struct {
	Seconds  float64
	Calls    int     // answered well, in the time that counts
	Answered []int64 // per connection, the numbers that were used up, warm-up included
	Failed   []int64 // of them, the numbers of calls that got no good answer
	Mixed    int     // answers that belong to another call
	Problems []string
	Latency  Quantiles // from the request to the end of the answer
	TTFB     Quantiles // to the first byte of its body
	Delay    Quantiles // of a chunk, from the engine's write to the arrival
	Bytes    int64     // of requests and answers, at the client; those of calls that failed are not among them
	AtOnce   int       // how many answers were being read at one time, at most
	Long     []LongResult
}

// Quantiles are in microseconds.
type Quantiles struct {
	N                  int
	P50, P90, P99, Max float64
}

func quantiles(ns []int64) Quantiles {
	if len(ns) == 0 {
		return Quantiles{}
	}
	slices.Sort(ns)
	at := func(q float64) float64 { return float64(ns[int(q*float64(len(ns)-1))]) / 1e3 }
	return Quantiles{len(ns), at(.5), at(.9), at(.99), at(1)}
}

// span is the time in which an answer was read.
type span struct{ from, to time.Time }

// most is how many spans overlap at most.
func most(spans []span) int {
	var ends, begins []time.Time
	for _, s := range spans {
		begins, ends = append(begins, s.from), append(ends, s.to)
	}
	slices.SortFunc(begins, time.Time.Compare)
	slices.SortFunc(ends, time.Time.Compare)
	peak, ended := 0, 0
	for i, b := range begins {
		for ended < len(ends) && ends[ended].Before(b) {
			ended++
		}
		peak = max(peak, i+1-ended)
	}
	return peak
}

// lane is one connection's part of a job. One goroutine owns it.
type lane struct {
	job    *Job
	index  int
	client *client
	req    *request
	number int64
	until  time.Time // when all answers must be there; zero for whenever

	count                int
	bytes                int64
	reading              []span
	failed               []int64
	mixed                int
	problems             []string
	latency, ttfb, delay []int64
}

// Load does a job.
func Load(job Job) (Result, error) {
	if len(job.Long) > 0 {
		return loadLong(job)
	}
	lanes := make([]*lane, job.Conns)
	var until time.Time
	if job.Patience > 0 {
		until = time.Now().Add(job.Warmup + job.For + job.Patience)
	}
	for i := range lanes {
		key := ""
		if len(job.Keys) > 0 {
			key = job.Keys[i%len(job.Keys)]
		}
		target := job.Target
		if len(job.Paths) > 0 {
			target.Path = job.Paths[i%len(job.Paths)]
		}
		m := mark{kind: markCall, gap: job.Gap, size: job.Chunks}
		lanes[i] = &lane{job: &job, index: i, req: newRequest(target, key, m, job.Stream), number: job.First + int64(i)*stride, until: until}
		if err := lanes[i].connect(); err != nil {
			return Result{}, err
		}
	}
	begin := time.Now()
	var all sync.WaitGroup
	for _, l := range lanes {
		all.Go(func() { l.run(begin) })
	}
	all.Wait()
	r := Result{Seconds: time.Since(begin).Seconds() - job.Warmup.Seconds()}
	var latency, ttfb, delay []int64
	var reading []span
	for _, l := range lanes {
		if l.client != nil {
			l.client.close()
		}
		r.Calls += l.count
		r.Answered = append(r.Answered, l.number-job.First-int64(l.index)*stride)
		r.Failed, r.Problems, r.Mixed = append(r.Failed, l.failed...), append(r.Problems, l.problems...), r.Mixed+l.mixed
		latency, ttfb, delay = append(latency, l.latency...), append(ttfb, l.ttfb...), append(delay, l.delay...)
		r.Bytes, reading = r.Bytes+l.bytes, append(reading, l.reading...)
	}
	r.AtOnce = most(reading)
	r.Problems = r.Problems[:min(len(r.Problems), 5)]
	r.Latency, r.TTFB, r.Delay = quantiles(latency), quantiles(ttfb), quantiles(delay)
	return r, nil
}

func (l *lane) connect() (err error) {
	source := 0
	if l.job.Spread > 1 {
		source = l.index % l.job.Spread
	}
	if l.client, err = dial(l.job.Target.Addr, source); err != nil {
		return err
	}
	return l.client.conn.SetDeadline(l.until)
}

func (l *lane) run(begin time.Time) {
	warm, end := begin.Add(l.job.Warmup), begin.Add(l.job.Warmup+l.job.For)
	for i := 0; ; i++ {
		if l.job.Rate > 0 { // connection i of n has every n-th call
			due := time.Duration(float64(i*l.job.Conns+l.index) / l.job.Rate * float64(time.Second))
			time.Sleep(time.Until(begin.Add(due)))
		}
		now := time.Now()
		if l.job.Calls > 0 && i >= l.job.Calls || l.job.Calls == 0 && !now.Before(end) {
			return
		}
		number := l.number
		l.number++
		delays := len(l.delay)
		if err := l.call(number); err != nil {
			l.failed = append(l.failed, number)
			l.problems = append(l.problems, err.Error())
			l.client.close()
			if l.client = nil; len(l.problems) > 20 || l.connect() != nil {
				return
			}
			continue
		}
		if now.Before(warm) {
			l.delay = l.delay[:delays]
			continue
		}
		l.count++
		l.latency = append(l.latency, int64(l.client.conn.at.Sub(now)))
		l.ttfb = append(l.ttfb, int64(l.client.firstByte.Sub(now)))
		l.bytes += int64(len(l.req.bytes) + len(l.client.body))
		l.reading = append(l.reading, span{l.client.firstByte, l.client.conn.at})
	}
}

// call makes one call and looks at its answer.
func (l *lane) call(number int64) error {
	if !l.job.Stream {
		if err := l.client.do(l.req.number(number)); err != nil {
			return err
		}
		m, found := findMark(l.client.body)
		if !found || m.number != number {
			l.mixed++
			return errors.New("the answer is that of another call")
		}
		return nil
	}
	seen, from, foreign := 0, 0, false
	l.client.visit = func(body []byte, at time.Time) {
		for {
			i := bytes.Index(body[from:], []byte(stampPrefix))
			stop := from + i + len(stampPrefix) + stampLen + 1 + numberLen
			if i < 0 || stop > len(body) {
				return
			}
			stamp, _ := digits(body[from+i+len(stampPrefix) : from+i+len(stampPrefix)+stampLen])
			whose, _ := digits(body[stop-numberLen : stop])
			foreign = foreign || whose != number
			l.delay = append(l.delay, at.UnixNano()-stamp)
			seen, from = seen+1, stop
		}
	}
	err := l.client.do(l.req.number(number))
	switch {
	case err != nil:
		return err
	case foreign:
		l.mixed++
		return errors.New("the answer has parts of another call")
	case seen != l.job.Chunks || !bytes.HasSuffix(l.client.body, []byte("data: [DONE]\n\n")):
		return fmt.Errorf("a stream with %d of %d chunks", seen, l.job.Chunks)
	}
	return nil
}
