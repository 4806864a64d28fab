package fakeengine

import (
	"math"
	"strconv"
)

// maxTopLogprobs is vLLM's default bound on top_logprobs.
const maxTopLogprobs = 20

// sampler gives every sampled id a logprob. At each position stands a distribution that the prompt and the position
// decide: a best token, a second at distance gap, and further ones at steady distances below. So the gap between the two
// best can be measured, and it shrinks with the temperature if the mode is Processed.
type sampler struct {
	v           *vocab
	seed        uint64
	temperature float64 // by which the distribution is divided
	greedy      bool
}

func (e *Engine) sampler(v *vocab, req *Request, prompt []int32) sampler {
	s := sampler{v: v, seed: uint64(len(prompt)), temperature: 1, greedy: req.Temperature == 0}
	for _, id := range prompt {
		s.seed = (s.seed ^ uint64(id)) * 0x9E3779B97F4A7C15
	}
	if e.opts.LogprobsMode == Processed && !s.greedy {
		s.temperature = req.Temperature
	}
	return s
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// distribution is what one id was sampled from.
type distribution struct {
	hash      uint64
	gap, step float64 // divided by the temperature already
	logZ      float64
	second    bool // the sampled id was not the best
}

func (s sampler) at(i int, variant uint64) distribution {
	h := mix(s.seed + uint64(i))
	p := distribution{hash: h}
	gap := 1.5 + float64(h>>8&0xFFFF)/0xFFFF*4 // 1.5 to 5.5
	if i > 0 && h%16 == 0 {
		gap = 80 // certain: the logprob is exactly 0
	}
	p.gap, p.step = gap/s.temperature, 0.5/s.temperature
	// 32 bits wide, as an engine sums: a tail too small to count leaves exactly 1.
	z := float32(1 + math.Exp(-p.gap)/(1-math.Exp(-p.step)))
	p.logZ = math.Log(float64(z))
	p.second = i > 0 && !s.greedy && h%16 != 0 && mix(h^variant)%9 == 0
	return p
}

// rank returns the logprob of the token of a rank, counted from 0.
func (p distribution) rank(r int) float64 {
	if r == 0 {
		return -p.logZ
	}
	return float64(float32(-p.gap - float64(r-1)*p.step - p.logZ))
}

// sampled returns the logprob of the sampled id.
func (p distribution) sampled() float64 {
	if p.second {
		return p.rank(1)
	}
	return float64(float32(p.rank(0)))
}

// alternatives calls f with the tokens that a row of top k lists after the sampled one, best first.
func (s sampler) alternatives(p distribution, sampled int32, k int, f func(id int32, logprob float64)) {
	rank := 1
	if p.second {
		rank = 0
	}
	size := uint64(s.v.enc.Size())
	for n := 1; n < k; n++ {
		id := int32((p.hash>>20 + uint64(n)*7919) % size)
		if id == sampled {
			id = int32((uint64(id) + 1) % size)
		}
		f(id, p.rank(rank))
		if rank++; p.second && rank == 1 {
			rank++ // the sampled one's own
		}
	}
}

// appendLogprob writes a logprob as Python writes a float.
func appendLogprob(dst []byte, v float64) []byte {
	if v == 0 {
		return append(dst, "0.0"...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}
