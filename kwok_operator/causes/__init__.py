"""Why a pod waited: the chain of causes of its start, from a recording or from a live cluster."""
