// exp, log, pow, sin and cos of double with the same bits on every host. A libm is another one in
// each glibc, and picks other code on each CPU: what may reach the bits of a loss curve comes from
// here (lint), so that a program gives the same curve wherever it is installed.
//
// They are sums, products and quotients of double alone, each rounded once, on pairs hi + lo of
// about 106 bits (T. J. Dekker, "A floating-point technique for extending the available precision",
// 1971). The build fuses none of them (-ffp-contract=off). The pair is rounded once at the end, so
// that nearly every result is the nearest double; tests/unit/base/elementary_test.cc holds the
// errors against wider arithmetic.
//
// Errors, in units in the last place: at most 0.503; 0.51 for pow; 1 where a result is below
// 2^-1022.
#pragma once

namespace lockstep::elementary {

double exp(double x);
// Of 0 it is -inf, of less NaN.
double log(double x);
// Requires: x >= 0. pow(0, y) is 0, 1 or inf, as y is above, at or below 0.
double pow(double x, double y);
// Of |x| above 2^23, which no angle of a model reaches, and of what is no number they are NaN.
struct SinCos {
  double sin, cos;
};
SinCos sin_cos(double x);
double cos(double x);

}  // namespace lockstep::elementary
