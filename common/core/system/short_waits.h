// How long the threads of OpenMP look for work before they sleep.
#pragma once

namespace aisc {

// The first words of main(). GCC's OpenMP lets a thread that waits look for about 5 ms before it
// sleeps. On a core that another program wants, too, that is time which the thread that is waited
// for does not get: with one busy program beside them, small steps took thirty times as long. Here
// threads look for about 20 microseconds, as long as it takes to wake one that sleeps: the most
// that is lost is then what sleeping at once would have lost.
//
// OpenMP reads its environment before main() begins, so the program starts itself anew, in its own
// place (execv): process number, arguments, open files and all other variables stay. It does so
// only if the environment says nothing of waiting (OMP_WAIT_POLICY, GOMP_SPINCOUNT, KMP_BLOCKTIME),
// which is how it knows the second time. Where it cannot, it goes on as it is.
void begin_with_short_waits(char** argv);

}  // namespace aisc
