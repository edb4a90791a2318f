// redsync as a contestant of the benchmarks, on one server or on a majority of several.
package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"

	"lockkeeper/bench/peers/course"
)

// It renews nothing, so the lease is what we have by default.
const lease = 30 * time.Second

type lock struct{ mutex *redsync.Mutex }

func (l lock) Take() (func(), error) {
	for {
		err := l.mutex.Lock()
		if err == nil {
			return l.give, nil
		}
		// It gives up after some tries; we wait as long as it takes.
		var taken *redsync.ErrTaken
		if !errors.Is(err, redsync.ErrFailed) && !errors.As(err, &taken) {
			return nil, err
		}
	}
}

func (l lock) give() {
	// With a server frozen it tells of that server, though the majority has released.
	if ok, err := l.mutex.Unlock(); !ok {
		panic(fmt.Sprint("not released: ", err))
	}
}

func main() {
	order := course.ReadOrder()
	var pools []redis.Pool
	for _, address := range order.Addresses() {
		pools = append(pools, goredis.NewPool(goredislib.NewClient(&goredislib.Options{Addr: address, PoolSize: 64})))
	}
	sync := redsync.New(pools...)
	course.Race(order, func(name string) course.Lock { return lock{sync.NewMutex(name, redsync.WithExpiry(lease))} })
}
