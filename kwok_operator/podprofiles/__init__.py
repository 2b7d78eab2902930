"""Compiles KwokPodProfiles into Stages and usage objects for kwok, and forecasts what pods do.

    profile, profiles of higher rank        --compile_profile-->  Stages
    profiles                                --compile_usage-->    a ClusterResourceUsage
    profile, pod                            --explain-->          what the pod will do, and when

kwok evaluates jq over the pod alone. So all random numbers are computed in two ways: in jq by kwok,
in Python by `explain`. `draws` and `quantiles` have both forms side by side. Numbers are whole and
below 2**53, so both ways give the same result, to the millisecond.
"""
