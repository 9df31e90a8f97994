"""`barnabas verify`: loads a cluster, writes down what happened, and judges it."""
